"""Requests over plain HTTP to a controller on this machine.

httpx loads all CA certificates before each request, encrypted or not, which takes longer than the answer, and it would
ask a proxy that the environment names.
"""

import ssl
from functools import partial

import httpx

NO_CA_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

request = partial(httpx.request, verify=NO_CA_CERTIFICATES, trust_env=False)
get = partial(httpx.get, verify=NO_CA_CERTIFICATES, trust_env=False)
put = partial(httpx.put, verify=NO_CA_CERTIFICATES, trust_env=False)
delete = partial(httpx.delete, verify=NO_CA_CERTIFICATES, trust_env=False)
Client = partial(httpx.Client, verify=NO_CA_CERTIFICATES, trust_env=False)
