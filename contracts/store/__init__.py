"""The shared todo store on Redis or Valkey: the one room that speaks its protocol."""
