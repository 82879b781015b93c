"""Weight formats. The core only defines their interface: its own weights are float32."""
