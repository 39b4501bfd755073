"""The engine over HTTP: a native API and the two that infilling clients already speak, behind one guard.

`tenon_engine.server.app.build_app` makes the app; a daemon runs it.
"""
