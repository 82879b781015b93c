"""Formats of weights. The core defines what one is, and has none itself: its weights are float32."""
