"""Made-up worlds to try things with: pure, seeded, their time handed in. One module per world."""
