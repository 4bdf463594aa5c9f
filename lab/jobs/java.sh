#!/bin/bash
here=$(cd "$(dirname "$0")" && pwd)
exec $JOB_WRAP java -Xmx640m -XX:+UseSerialGC -cp "$here" Job
