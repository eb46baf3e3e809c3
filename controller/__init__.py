"""The SDN controller: the only place that imports os-ken and FastAPI.

commands    the command lines: `beamer-controller`, `beamer journal`, `certs`, `token`
service     the process: leads or follows               runtime     the one writer: events in, decisions out
http        the HTTP API and its server                 journal     replay, compaction, which controller leads
network     from an event to an acknowledged plan       gpu         searches' engines, and who has which GPUs
agents      the host agents' WebSockets                 openflow    the switches
liveness    workers and searches that fell silent       identity    certificates and tokens
ovsdb       queues of switches, by their databases
event_loop  timers and long work in slices              limits      how much is accepted, checked by `admission`
"""
