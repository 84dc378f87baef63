"""The course's text: a folder a chapter, with its text (README.md), demo and tests; ``book`` reads them, ``figures`` draws for them."""
