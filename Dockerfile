# Server, worker and Docker proxy in one image: started by compose.yaml. On its own it is a server without an engine.
#   docker build --tag patchwright .
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends ca-certificates python3 python3-venv >/dev/null \
    && rm -rf /var/lib/apt/lists/*
# For a network with its own package index: --build-arg PIP_INDEX_URL=...
ARG PIP_INDEX_URL
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY bot bot
COPY demo demo
COPY evaluation evaluation
COPY patchwright patchwright
COPY resolver resolver
COPY runtime runtime
COPY sdk sdk
COPY templates templates
RUN python3 -m venv /opt/patchwright \
    && /opt/patchwright/bin/pip install --quiet --no-cache-dir --disable-pip-version-check '.[archive,mcp,otel]'

FROM ${BASE}
RUN apt-get update -qq \
    && apt-get install -qq -y --no-install-recommends ca-certificates git openssh-client python3 redis-server >/dev/null \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 10002 patchwright \
    && useradd --uid 10002 --gid 10002 --home-dir /var/lib/patchwright --create-home patchwright \
    && install --directory --owner=patchwright --group=patchwright --mode=0700 /var/lib/patchwright/redis \
        /var/lib/patchwright-key
COPY --from=build /opt/patchwright /opt/patchwright
ENV PATH=/opt/patchwright/bin:$PATH PATCHWRIGHT_DATA=/var/lib/patchwright PYTHONUNBUFFERED=1
USER patchwright
WORKDIR /var/lib/patchwright
VOLUME /var/lib/patchwright
EXPOSE 8000
ENTRYPOINT ["patchwright"]
CMD ["serve", "--host", "0.0.0.0"]
