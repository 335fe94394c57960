"""The values that travel through Ringfence: frozen, slotted, without behaviour that touches the machine."""
