"""What a newcomer sees: the dry-run packet, presets, the live view."""
