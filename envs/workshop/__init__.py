"""`workshop@1`, an abstract long-horizon software project. Its files:

    language.py      the closed vocabulary, the places of an observation's words, the arity of the verbs
    names.py         agents and packages that a version knows
    city.py          `workshop-city@1`: the same rules for up to 1,000 agents, in the same vocabulary; `workshop-names@1`
    nicknames.py     what an agent of a city calls what it sees in one turn
    states.py        what an observation shows, as a few numbers, for comparing distributions
    actions.py       the tools, and the parser of calls
    spec.py          a task's spec: checked and flattened
    environment.py   the simulator: observe, begin, finish, earned
    prose.py         rules and state in open text, for chat models
    memory.py        what one agent remembers
    tasks.py         task sets: families, parallel share p, coupling c
    real.py          slices of real import graphs
    grammar.py       random valid actions, the distribution that the warm start clones
    players.py       scripted players with perfect information; sighted.py those who know what their agents see
    dispatch.py      greedy list scheduling: which module comes next, and a forecast
    bounds.py        what no players can exceed
    graphs/          the graphs of real Python packages, and the script that makes them

How it is played is told in environment.py.
"""
