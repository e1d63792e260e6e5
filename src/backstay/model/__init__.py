"""What is true and what was decided: plain frozen values, without any I/O.

``labels`` holds every name that we put on other people's objects; ``reasons`` every reason that
we give; ``evidence`` what proves a node dead; ``workload`` what runs on a node and what it could
write to; ``node`` what is known of a node; ``incident`` how one death is told.
"""
