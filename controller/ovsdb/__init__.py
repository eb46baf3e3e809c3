"""Makes the queues of switches by their databases.

`messages` has the protocol (RFC 7047), `connection` a database's rows, `queues` what rows there should be, `keeper` a task
for each switch. Nothing else of the controller speaks this protocol.
"""
