"""Lesson 20: programs that run on several processes at once, and what starts them and watches over them.

    python -m course parallel --help
    torchrun --nproc-per-node 2 -m course.parallel.data_parallel_pytorch --steps 20 --out run
    torchrun --nproc-per-node 2 -m course.parallel.pipeline
    msrun --worker_num 2 --local_worker_num 2 --join True course/parallel/data_parallel_mindspore.py --steps 5
"""
