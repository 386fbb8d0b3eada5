"""The order of a weight sync on vLLM: pause and empty the caches, load, resume, prove, and only then the new version.

Two things are proven each time: the weights (the logprobs of the trainer's probe, computed anew) and the prefix cache (a
fixed row of ids is read through it and computed anew, and both must agree; it was read just before the sync, so a cache that
was not emptied still holds it).
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from rlcr_core.engines.vllm_client import VllmClient
from rlcr_core.engines.vllm_process import Serving
from rlcr_core.engines.vllm_weights import Probe, check_probe
from rlcr_core.errors import EngineFault, WeightError


class WeightSync:
    """The syncs of one vLLM; every coroutine runs on its loop, one at a time. `adapter` is the LoRA adapter in use."""

    def __init__(self, client: VllmClient, tolerance: float, serving: Serving) -> None:
        self.client, self.llm, self.tolerance = client, client.llm, tolerance
        self.adapter: Any = None
        self.probe_tokens = 0
        self._numbers = itertools.count()
        # Two cache blocks of fixed ids, below any vocabulary's size, and a last one.
        self._canary = [1 + i % 13 for i in range(min(2 * serving.block_tokens + 2, serving.max_context_tokens - 1))]

    # -- kinds of sync -----------------------------------------------------------------------------------------------

    async def from_folder(self, folder: Path, version: int, probe: Probe) -> float:
        """Reload from a fresh folder, which `export_for_vllm` wrote."""
        await self.begin()
        await self._load(self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)}), version)
        return await self.prove(version, probe)

    async def from_adapter(self, folder: Path, version: int, number: int, probe: Probe) -> float:
        """Swap the adapter: the new one under its own name, so that neither weights nor cache of the old are found."""
        from vllm.lora.request import LoRARequest

        await self.begin()
        old = self.adapter
        request = LoRARequest(lora_name=f"version-{version}-{number}", lora_int_id=number, lora_path=str(folder))
        try:
            taken = await self.client.control(self.llm.add_lora(request))
        except EngineFault as fault:
            await self.resume()
            raise WeightError(f"vLLM did not take the adapter {folder} of version {version}: {fault}") from fault
        if not taken:
            await self.resume()
            raise WeightError(f"vLLM did not take the adapter {folder} of version {version}: its number is in use.")
        self.adapter = request
        if old is not None:
            await self.llm.remove_lora(old.lora_int_id)
        return await self.prove(version, probe)

    # -- the steps ---------------------------------------------------------------------------------------------------

    async def resume(self) -> None:
        """Schedule again; a vLLM that stays paused would answer no later probe."""
        await self.client.control(self.llm.resume_generation())

    async def begin(self) -> None:
        """Stop scheduling and empty every cache."""
        await self._canary_through_cache()  # the most recent entry of the cache that must not survive
        await self.client.control(self.llm.pause_generation(mode="abort", clear_cache=True))

    async def _load(self, work: Coroutine[Any, Any, Any], version: int) -> Any:
        """A load that fails leaves the model without weights, and the next request would end vLLM: it counts as dead."""
        try:
            return await self.client.control(work)
        except EngineFault as fault:
            self.client.die(f"it failed to load version {version}")
            raise WeightError(
                f"vLLM could not load version {version}: {fault}. The version was not advanced; build a new engine."
            ) from fault

    async def prove(self, version: int, probe: Probe) -> float:
        """Resume, compare, and only then label the weights with the version; the worst difference (nats)."""
        await self.resume()
        where = f"version {version} in vLLM"
        await self._check_cache(where)
        worst = check_probe(await self.read(probe.ids), probe, self.tolerance, where)
        await self.client.control(self.llm.update_weight_version(str(version)))
        label = await self.client.control(self.llm.get_weight_version())
        if label != str(version):
            raise WeightError(f"vLLM says that it serves version {label}, expected {version}; start the run again.")
        return worst

    async def _check_cache(self, where: str) -> None:
        through_cache, cached = await self._canary_through_cache()
        row = self._canary
        anew = (await self.read([row]))[0][-1]
        difference = abs(through_cache - anew)
        if not difference <= self.tolerance or cached:
            raise WeightError(
                f"The prefix cache of {where} survived the sync: id {row[-1]} after {len(row) - 1} fixed ids has the logprob "
                f"{through_cache:.6f} read through the cache ({cached} ids came from it, expected 0) and {anew:.6f} computed "
                f"anew: off by {difference:.3g} nats, at most {self.tolerance:g} allowed. The version was not advanced; start "
                "the run again."
            )

    # -- reading logprobs --------------------------------------------------------------------------------------------

    async def _canary_through_cache(self) -> tuple[float, int]:
        """The logprob of the canary's last id at temperature 1, and how many ids of it came from the prefix cache."""
        *ids, last = self._canary
        output = await self._request(ids, logprobs=1, logprob_token_ids=[last])
        return float(output.outputs[0].logprobs[0][last].logprob), output.num_cached_tokens or 0

    async def read(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Logprobs (nats) of each next token at temperature 1; never from the cache."""
        result = []
        for row in ids:
            output = await self._request(list(row), prompt_logprobs=0)
            result.append([float(at[token].logprob) for token, at in zip(row[1:], output.prompt_logprobs[1:], strict=True)])
        return result

    async def _request(self, ids: list[int], **what: Any) -> Any:
        from vllm import SamplingParams

        parameters = SamplingParams(temperature=1.0, seed=0, max_tokens=1, ignore_eos=True, detokenize=False, **what)
        output = await self.client.request(ids, parameters, f"probe-{next(self._numbers)}", self.adapter)
        self.probe_tokens += len(output.outputs[0].token_ids)
        return output
