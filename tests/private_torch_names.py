"""Every private torch name the package uses, and why there is no public one. A new entry needs a reason."""

ALLOWED: dict[str, str] = {
}
