"""Between the controller and the brokers: requests, their way, what a broker makes of them."""
