# syntax=docker/dockerfile:1

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -w" -o /out/mqtt-inbox ./cmd/mqtt-inbox && mkdir /out/data

FROM scratch
COPY --from=build /out/mqtt-inbox /mqtt-inbox
# A new volume takes over the owner of what it covers.
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
VOLUME /data
EXPOSE 1883
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s CMD ["/mqtt-inbox", "health", "--address", "127.0.0.1:1883"]
# Inside a container every address but localhost is reached only through a port
# that its user has published; who publishes it decides who comes in.
ENTRYPOINT ["/mqtt-inbox"]
CMD ["serve", "--listen", "0.0.0.0:1883", "--data", "/data", "--allow-anonymous"]
