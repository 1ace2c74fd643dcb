"""What lies in results/, where it comes from, whether it is whole, and who still needs it."""
