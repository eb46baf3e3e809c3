"""The SDN controller: the only place that imports os-ken and FastAPI.

    commands    the command lines: `beamer-controller`, `beamer journal`, `certs`, `token`
    service     the process: leads or follows               runtime     the one writer: events in, decisions out
    http        the HTTP API and its server                 journal     replay, compaction, which controller leads
    agents      the host agents' WebSockets                 liveness    workers and searches that have fallen silent
    openflow    the switches                                limits      how much is accepted, checked by `admission`
    identity    certificates and tokens                     gpu         searches' engines, and who has which GPUs

`estimates`, `targets`, `installation` and `set_aside` are parts of what the runtime does between an event and the
acknowledgements of a plan.
"""
