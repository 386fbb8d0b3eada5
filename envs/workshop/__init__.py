"""`workshop@1`, an abstract long-horizon software project. Its files:

    language.py      the closed vocabulary, the places of an observation's words, the arity of the verbs
    actions.py       the tools, and the parser of calls
    spec.py          a task's spec: checked and flattened
    environment.py   the simulator: observe, begin, finish, earned
    prose.py         rules and state in open text, for chat models
    memory.py        what one agent remembers
    tasks.py         task sets: families, parallel share p, coupling c
    real.py          slices of real import graphs
    grammar.py       random valid actions, the distribution that the warm start clones
    graphs/          the graphs of real Python packages, and the script that makes them

How it is played is told in environment.py.
"""
