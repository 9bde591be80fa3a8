"""What commands on Spark share: their `session`, their `ending`, and the `queries` they follow."""
