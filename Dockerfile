# The course without a GPU, for a laptop or a JupyterHub.
#
#   docker build -t allreduce-course .
#   docker run --rm -p 8888:8888 --shm-size=1g --security-opt seccomp=unconfined \
#       -v allreduce-work:/home/learner/course/work allreduce-course
#
# -v: notebooks, answers and records lie in work/, and outlive the container in a volume of that name.
# --shm-size: ranks share tensors in /dev/shm; Docker's 64 MB are too few.
# seccomp=unconfined: Docker's default profile forbids new user namespaces, which the emulated links need. Without it everything
# else works, and those lessons show the recorded runs instead; `python -m course doctor` says which it is.
FROM python:3.12-slim-bookworm

RUN useradd --create-home learner
WORKDIR /home/learner/course
RUN chown learner /home/learner/course
USER learner
ENV PATH="/home/learner/venv/bin:$PATH" PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# torch apart from the rest: cached while the course changes. It is the CPU build, a tenth of the size. For NVIDIA GPUs, or
# where the index of the CPU builds cannot be reached: --build-arg TORCH_INDEX=
ARG TORCH_INDEX="https://download.pytorch.org/whl/cpu"
RUN python -m venv /home/learner/venv \
    && pip install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch==2.13.0
COPY --chown=learner requirements.txt pyproject.toml README.md ./
COPY --chown=learner labkit/__init__.py labkit/
COPY --chown=learner course/__init__.py course/
RUN pip install -r requirements.txt
COPY --chown=learner . .
RUN mkdir work
VOLUME /home/learner/course/work

EXPOSE 8888
CMD ["python", "-m", "course", "start", "--no-browser", "--ip=0.0.0.0", "--port=8888"]
