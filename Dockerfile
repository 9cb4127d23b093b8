# Copyright The Clipper Authors.
# SPDX-License-Identifier: Apache-2.0
#
# Velero's own image with the server binary replaced. Everything else in it (restic, the plugin layout, the user) stays.
FROM golang:1.26 AS build
WORKDIR /src
COPY . .
RUN make bin/velero

FROM velero/velero:v1.18.3
COPY --from=build /src/bin/velero /velero
