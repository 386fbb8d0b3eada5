"""Chat models as agents: what they read, and what the tokens that they sample mean.

    tokenizer.py   a chat model's tokenizer: texts of agents never become special tokens, and every text comes back as it was
    template.py    the model's chat template, cut into the pieces that a growing transcript is made of
    borders.py     where the pieces differ from rendering the whole conversation at once
    tools.py       every tool of an agent: the collective's and the environment's, as lines or as JSON schemas
    forms.py       the two forms of a call, plain lines and JSON: strict reading, and writing, its inverse
    texts.py       the words of a prompt: system prompt, results, messages, time, roster, summary; each cut to its size
    harness.py     ChatHarness, which keeps each agent's transcript within its limits

To add a form of calls: write a class with the members of `forms.Form` and let `harness.ChatHarness` choose it. What an agent
sees, with an example, and every limit: docs/chat.md.
"""
