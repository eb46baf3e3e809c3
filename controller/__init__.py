"""The SDN controller: the only place that imports os-ken and FastAPI.

    commands    the command lines: `beamer-controller`, `beamer journal`, `certs`, `token`
    http        the HTTP API and its server                 runtime     the one writer: events in, decisions out
    agents      the host agents' WebSockets                 journal     replay, compaction, which controller leads
    openflow    the switches                                liveness    workers and searches that have fallen silent
    identity    certificates and tokens                     limits      how much is accepted, checked by admission

`runtime` holds the other modules together: `estimates`, `targets`, `installation` and `set_aside` are parts of what it does
between an event and the acknowledgements of a plan.
"""
