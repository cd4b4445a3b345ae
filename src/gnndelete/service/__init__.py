"""The deletion service: requests over HTTP, suppression at once, new weights by the due date, and receipts for both.

    api, console  ─►  lifecycle  ─►  storage          what is asked, and what may happen next
    worker        ─►  lifecycle, solver, models        what is done
    receipts, ledger, merkle, verify                   what can be proven

`lifecycle.Service` is the facade that the HTTP interface, the console, the command line and the worker call. ``states`` has the
state machine as tables. Every query is in ``storage``. The extra ``[serve]`` installs what this package needs.
"""
