"""The handlers of share groups, imported when first used; `handlers` has the record of each API."""
