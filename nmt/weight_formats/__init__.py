"""Weight formats. The core defines only their interface; the core's own weights are float32."""
