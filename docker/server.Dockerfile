# MLflow's server with the driver of PostgreSQL, for docker/compose.yaml: the versions of conda.yaml, so that server and
# trainings have the same, without what trains. Built from the top folder:
#
#   docker build -f docker/server.Dockerfile -t biasbed-server .

# Any image with Python 3.11 and its venv module.
ARG BASE=python:3.11-slim
FROM ${BASE}

ENV VIRTUAL_ENV=/opt/venv \
    PATH=/opt/venv/bin:/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin

# As in ../Dockerfile, but of its pins only what these two need.
COPY conda.yaml /opt/biasbed/
RUN python3 -m venv /opt/venv \
 && sed -n 's/^ *- \([A-Za-z0-9_.-]*==[^#]*\).*/\1/p' /opt/biasbed/conda.yaml \
  | pip install --no-cache-dir --disable-pip-version-check --no-compile --only-binary :all: \
    -c /dev/stdin mlflow 'psycopg[binary]' \
 && (PYTHONHASHSEED=0 python -m compileall -qq -f --invalidation-mode unchecked-hash /opt/venv/lib || true)

RUN echo biasbed:x:10001: >> /etc/group \
 && echo biasbed:x:10001:10001::/home/biasbed:/bin/sh >> /etc/passwd \
 && mkdir /artifacts /home/biasbed \
 && chown 10001:10001 /artifacts /home/biasbed
ENV HOME=/home/biasbed PYTHONUNBUFFERED=1 GIT_PYTHON_REFRESH=quiet

USER biasbed
WORKDIR /home/biasbed
EXPOSE 5000
CMD ["mlflow", "server", "--help"]
