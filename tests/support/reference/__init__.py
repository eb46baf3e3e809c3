"""Plain counterparts of the kernels: dicts and lists, one function or class for each, slow and easy to check by eye.

Rates: `maxmin`, `classes`, `greedy`, `madd`, `equal_split`, all of `FlowDemand`s. Order: `bssi`. A whole run: `simulate`, on a
`ReferenceNetwork` of jobs in `ReferenceJob`, by an `Agenda`. Tests compare the kernels with them.
"""
