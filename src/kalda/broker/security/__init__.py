"""How clients and brokers reach this broker: the security of listeners and of connections between brokers."""
