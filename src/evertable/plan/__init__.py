"""What an edit of a pipeline means to the tables that run already, and the ways forward."""
