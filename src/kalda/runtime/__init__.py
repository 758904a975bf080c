"""The ports through which Kalda uses its machine: time, randomness, network, files, background work.

The code that builds a broker or a client has a `Runtime` (`kalda.runtime.runtime`), the value of the five,
and gives each part the one that it uses. `kalda.runtime.system` implements them with the operating system;
tests and simulations pass others. Below the tools only `system` imports `socket`, `selectors`, `threading`,
`time`, `random` and `secrets`; the import contracts list the exceptions. The package imports nothing else of
Kalda.

Time comes from two places, which are never mixed:

- A deadline, a delay or a time-out on the event loop is in the seconds of the loop, ``loop.time()``.
- A timestamp (`Clock.time_ms`), and a duration or a period that code without a loop measures
  (`Clock.monotonic`), come from the `Clock`.

On a real machine ``loop.time()`` and `Clock.monotonic` read the same clock; a simulation moves them together.
"""
