"""Real projects' own test suites, run bare and in a box: the counts have to be equal (`make real-projects`)."""
