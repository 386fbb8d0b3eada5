"""Module-import graphs of real Python packages: extract.py makes graphs.json."""
