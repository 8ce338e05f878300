// docs/openapi.json, for GET /v1/openapi.json.
#pragma once

namespace hutch::daemon {

extern const char kOpenApiText[];

}  // namespace hutch::daemon
