"""Git by SSH: ended at the proxy, judged by service and repository, carried on with a key that stays outside."""
