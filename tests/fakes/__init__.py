"""Stand-ins: what plays something real in tests that cannot have it. Each is held against the real thing.

`kubernetes`: a Kubernetes API server, over HTTP or HTTPS. tests/e2e/test_fakes.py asks it and a real one the same.
`kubectl`: kubectl, one with answers and one with objects. tests/e2e/test_fakes.py, with the real kubectl.
`queue_cluster`: kubectl in front of a cluster with a queue. tests/graph/test_jobs.py has its objects made by the
    program itself, tests/e2e/test_jobs_touched.py has a real queue.
`slurmctld`: records of nodes and their jobs behind scontrol and squeue. tests/slurm/test_fakes.py asks it and a real
    one the same.
`engine`: the `pulumi` command and `kubectl` on a PATH. tests/e2e, where the real `pulumi` is on PATH.
`tools`: docker, podman and buildah on a PATH. tests/e2e/test_images.py, with the real podman.
`nebius`, `nebius_answers`: the Nebius API by gRPC. Requests and answers are messages of the vendor's own SDK.
`gpu_tools`: nvidia-smi, as a program; on workers of a real cluster, too. It says what tests/unit/images/health/data
    has of the real one.
`node_tests_cluster`: that slurmctld with the jobs and reservations of the tests of nodes, and users who wait.
    tests/slurm/test_node_tests.py has the same program before a real one.
`commands`: a runner of commands and a clock. They know nothing by themselves: a test says what is answered.

What plays a test's surroundings by an interface of ours, and not by somebody else's, lies in that test.
"""
