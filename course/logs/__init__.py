"""What other tools wrote: their logs as records, and a page that reads them."""
