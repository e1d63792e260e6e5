"""The composition root: ``build(settings, seams, client) -> App``, where all parts are joined."""
