"""The viewer in a real headless browser: it is opened, clicked, zoomed, panned and read; screenshots go to the test's folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tasks.figure_style import PALETTE
from tasks.timeline import KINDS
from tasks.viewer import viewer_page

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = os.environ.get("CHROMEDRIVER") or shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)"
)
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
WORDS = WordTokenizer(["hire", "post", "work", "p1", "k1", "<img/src=x>", "seen"])
TURN_S, LIMIT_S = 4.0, 40.0


def a_rollout(n_agents: int) -> Rollout:
    """Each agent takes ten turns of 4 s: post (a text of its own), then work; its second turn sees every first post."""
    agents = [AgentRecord(a, f"agent{a}", 0.0, 0.0) for a in range(n_agents)]
    events: list[Event] = []
    turns: dict[int, list[Turn]] = {}
    for a in range(n_agents):
        turns[a] = []
        for i in range(10):
            kind, said, tool = (TurnKind.TALK, "post p1 k1", "post") if i == 0 else (TurnKind.WORK, "work <img/src=x> k1", "work")
            ids, start_s = WORDS.encode(said), i * TURN_S
            turns[a].append(
                Turn(a, i, i, WORDS.encode("seen p1"), ids, [-0.5] * 3, start_s, start_s + TURN_S, kind, 0, tool, "done")
            )
        events.append(Event(TURN_S, EventType.MESSAGE, a, -1, float(a % 2), f"text {a}"))
        events += [Event(TURN_S, EventType.DELIVERY, b, a, TURN_S, f"text {a}") for b in range(n_agents) if b != a]
        events.append(Event(8.0, EventType.REWARD, a, -1, 0.5 / n_agents))
    events.sort(key=lambda event: event.time_s)
    return Rollout(RolloutKey("run", 0, 0, 0), "task", LIMIT_S, 1, agents, turns, events, StopReason.DEADLINE, LIMIT_S)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    features = {"prefers-reduced-motion": "reduce", "prefers-color-scheme": "light"}
    media = [{"name": name, "value": value} for name, value in features.items()]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    yield driver
    driver.quit()


def sized(browser: Any, width: int, height: int) -> None:
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def opened(browser: Any, folder: Path, n_agents: int, width: int = 1400, height: int = 860) -> None:
    page = folder / "rollout.html"
    page.write_text(viewer_page(a_rollout(n_agents), WORDS), encoding="utf-8")
    sized(browser, width, height)
    browser.get_log("browser")
    browser.get(page.as_uri())
    settled(browser)


def settled(browser: Any) -> None:
    """Wait until the page has drawn what was asked of it."""
    browser.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))")


def js(browser: Any, code: str) -> Any:
    settled(browser)
    return browser.execute_script(f"return {code}")


def click_at(browser: Any, x: float, y: float) -> None:
    actions = ActionChains(browser, duration=0)
    actions.w3c_actions.pointer_action.move_to_location(round(x), round(y)).pointer_down().pointer_up()
    actions.w3c_actions.perform()
    settled(browser)


def middle(browser: Any, lane: int, index: int) -> tuple[float, float]:
    box = js(browser, f"viewer.barBox(viewer.turnOf({lane}, {index}))")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def panel(browser: Any) -> str:
    return str(browser.find_element(By.ID, "tab-turn").text)


def shot(browser: Any, path: Path) -> Image.Image:
    settled(browser)
    data = browser.get_screenshot_as_png()
    path.write_bytes(data)
    return Image.open(BytesIO(data)).convert("RGB")


def rgb(colour: str) -> tuple[int, ...]:
    return tuple(int(colour[k : k + 2], 16) for k in (1, 3, 5))


def test_a_turn_is_clicked_and_read(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, 9)
    assert browser.find_element(By.ID, "task").text == "task"
    assert "0.500" in browser.find_element(By.ID, "facts").text
    x, y = middle(browser, 3, 1)
    picture = shot(browser, tmp_path / "desktop.png")
    box = js(browser, "viewer.barBox(viewer.turnOf(3, 1))")
    below = picture.getpixel((round(x), round(box["y"] + 3)))  # above the text in the bar
    assert below == rgb(PALETTE[KINDS[TurnKind.WORK]][0])
    click_at(browser, x, y)
    text = panel(browser)
    assert "agent3" in text and "turn 2 of 10" in text and "4.00 s to 8.00 s" in text
    assert "<img/src=x>" in text and "seen p1" in text and "61%" in text  # exp(-0.5) = 0.6065
    assert "text 0" in text and not browser.find_elements(By.CSS_SELECTOR, "img")
    browser.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert "turn 3 of 10" in panel(browser)
    browser.switch_to.active_element.send_keys(Keys.ARROW_UP)
    assert "agent2" in panel(browser)
    assert [entry for entry in browser.get_log("browser") if entry["level"] != "DEBUG"] == []


def test_zoom_pan_and_toggles_change_what_is_drawn(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, 9)
    # 9 posts, each shown to 8 others: 72 arrows; 90 turns.
    assert js(browser, "viewer.redraw().arrows") == 72 and js(browser, "viewer.drawn.bars") == 90
    chips = {chip.text.split()[0]: chip for chip in browser.find_elements(By.CSS_SELECTOR, "#chips .chip")}
    chips["talk"].click()
    assert js(browser, "viewer.drawn.bars") == 81
    chips["only"].click()  # agents 0, 2, 4, 6, 8 posted what is untrue
    assert js(browser, "viewer.drawn.arrows") == 40
    chips["messages"].click()
    assert js(browser, "viewer.drawn.arrows") == 0
    whole = js(browser, "viewer.view.t1 - viewer.view.t0")
    plot = browser.find_element(By.ID, "plot")
    origin = ScrollOrigin.from_element(plot)
    ActionChains(browser).key_down(Keys.CONTROL).scroll_from_origin(origin, 0, -240).key_up(Keys.CONTROL).perform()
    zoomed = js(browser, "viewer.view.t1 - viewer.view.t0")
    assert zoomed < 0.8 * whole
    before = js(browser, "viewer.view.t0")
    ActionChains(browser).move_to_element_with_offset(plot, 0, 150).click_and_hold().move_by_offset(-120, 0).release().perform()
    assert js(browser, "viewer.view.t0") > before
    browser.find_element(By.ID, "zoom-in").click()
    assert js(browser, "viewer.view.t1 - viewer.view.t0") < zoomed
    browser.find_element(By.ID, "fit").click()
    assert js(browser, "viewer.view.t1 - viewer.view.t0") == pytest.approx(whole)


def test_messages_are_listed_found_and_lead_to_their_turns(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, 9)
    browser.find_element(By.ID, "for-messages").click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#message-list > li")) == 9
    browser.find_element(By.ID, "message-filter").send_keys("text 4")
    rows = browser.find_elements(By.CSS_SELECTOR, "#message-list > li")
    assert len(rows) == 1
    assert all(words in rows[0].text for words in ("agent4 → everybody", "untrue", "new to 8 of 8"))
    rows[0].find_element(By.TAG_NAME, "button").click()
    browser.find_element(By.CSS_SELECTOR, "#message-list .plain").click()
    assert "agent4" in panel(browser) and "turn 1 of 10" in panel(browser)


def test_two_hundred_agents_are_scrolled_and_only_what_is_visible_is_drawn(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, 200)
    assert (tmp_path / "rollout.html").stat().st_size < 5_000_000
    assert js(browser, "viewer.redraw().bars") < 1000  # of 2000
    assert js(browser, "viewer.drawn.arrowsInView") > js(browser, "viewer.drawn.arrows") > 0
    assert "arrows drawn" in browser.find_element(By.ID, "note").text
    plot = browser.find_element(By.ID, "plot")
    ActionChains(browser).scroll_from_origin(ScrollOrigin.from_element(plot), 0, 900).perform()
    assert js(browser, "viewer.view.scrollY") == pytest.approx(900)
    browser.execute_script("viewer.selectTurn(viewer.turnOf(180, 5))")
    x, y = middle(browser, 180, 5)
    click_at(browser, x, y)
    assert "agent180" in panel(browser) and "turn 6 of 10" in panel(browser)
    browser.find_element(By.ID, "rows-all").click()
    assert js(browser, "viewer.redraw().bars") == 2000
    shot(browser, tmp_path / "city.png")


def test_a_phone_opens_a_sheet_and_dark_paper_is_dark(browser: Any, tmp_path: Path) -> None:
    opened(browser, tmp_path, 9, 390, 844)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    assert not browser.find_element(By.ID, "panel").is_displayed()
    click_at(browser, *middle(browser, 8, 5))
    sheet = browser.find_element(By.ID, "panel")
    assert sheet.is_displayed() and "agent8" in panel(browser)
    top = sheet.rect["y"]
    _, y = middle(browser, 8, 5)
    assert y < top  # the turn that is read is not behind the sheet
    browser.execute_script("viewer.setTheme('dark')")
    assert shot(browser, tmp_path / "phone.png").getpixel((385, round(top) + 60)) == rgb(PALETTE["paper"][1])
    browser.find_element(By.ID, "close-panel").click()
    assert not sheet.is_displayed()
