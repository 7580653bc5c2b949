# biasbed with everything it needs; every entry point is a command of the image:
#
#   docker/build
#   docker run --rm biasbed train --algorithm infodrop
#
# docker/README.md has the rest (data, results, GPUs, tracking server, `mlflow run docker`).
#
# Equal pins and an equal commit give an equal image: wheels only, nothing that keeps the time of the build. Compiled
# files name their source by its hash and are never checked against its time, which `docker/build` sets for all files.

# Any image with Python 3.11 and its venv module. No CUDA image is needed: torch's packages bring the CUDA libraries,
# and the container runtime the driver.
ARG BASE=python:3.11-slim
FROM ${BASE}

# A virtual environment, because Debian's own Python refuses to install into itself.
ENV VIRTUAL_ENV=/opt/venv \
    PATH=/opt/venv/bin:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin

# First the packages, which seldom change: code edits below don't install them again. Their one list is conda.yaml.
# (compileall says no where a package has a template that is not Python.)
COPY conda.yaml /opt/biasbed/
RUN python3 -m venv /opt/venv \
 && sed -n 's/^ *- \([A-Za-z0-9_.-]*==[^#]*\).*/\1/p' /opt/biasbed/conda.yaml \
  | pip install --no-cache-dir --disable-pip-version-check --no-compile --only-binary :all: -r /dev/stdin \
 && (PYTHONHASHSEED=0 python -m compileall -qq -f --invalidation-mode unchecked-hash /opt/venv/lib || true)

# The user is nobody in particular, and so may be any (docker run --user), for instance the owner of a mounted folder:
# whatever is written to at run time is writable by all. USER and LOGNAME stand in for the entry in /etc/passwd that
# such a user lacks. MLflow mounts a tracking database given as a file into /mlflow/tmp, and SQLite writes beside it.
# (useradd would leave logs and backups.)
RUN echo biasbed:x:10001: >> /etc/group \
 && echo biasbed:x:10001:10001::/home/biasbed:/bin/sh >> /etc/passwd \
 && mkdir -p /home/biasbed /data /output /mlflow/tmp \
 && chmod 0777 /home/biasbed /data /output /mlflow/tmp
ENV HOME=/home/biasbed USER=biasbed LOGNAME=biasbed \
    BIASBED_HOME=/output \
    PYTHONPATH=/opt/biasbed/src PYTHONUNBUFFERED=1 \
    GIT_PYTHON_REFRESH=quiet \
    MLFLOW_DISABLE_TELEMETRY=true HF_HUB_DISABLE_TELEMETRY=true DO_NOT_TRACK=true \
    NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

COPY . /opt/biasbed
RUN PYTHONHASHSEED=0 python -m compileall -q --invalidation-mode unchecked-hash /opt/biasbed/src /opt/biasbed/analysis

# Kubernetes takes the first word of a command for the program (MLflow's backend leaves the entry point no say), so each
# command is one, too. Last in PATH: `test` stays the system's.
RUN mkdir /opt/programs \
 && for name in $(python -c "from biasbed.cli import COMMANDS; print(*COMMANDS)"); do \
      printf '#!/bin/sh\nexec python -m biasbed %s "$@"\n' $name > /opt/programs/$name; \
    done \
 && chmod +x /opt/programs/*
ENV PATH=${PATH}:/opt/programs

ARG VERSION=unknown
ARG COMMIT=unknown
LABEL org.opencontainers.image.title=biasbed \
      org.opencontainers.image.licenses=MIT \
      org.opencontainers.image.version=${VERSION} \
      org.opencontainers.image.revision=${COMMIT}
ENV BIASBED_GIT_COMMIT=${COMMIT}

# /data and /output are there to be mounted over. They are not declared as VOLUME, which would leave an unnamed volume
# behind for every run without one.
USER biasbed
# Without a tracking server MLflow keeps its database and artifacts in the working directory.
WORKDIR /output
ENTRYPOINT ["python", "-m", "biasbed"]
CMD ["--help"]
