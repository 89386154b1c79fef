def today() -> str:
    return "2026-11-20"
