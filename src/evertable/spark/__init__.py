"""All of Spark that is not plain DataFrame API; the only room where the JVM is touched."""
