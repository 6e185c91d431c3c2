// Bytes as text and back: for JSON, tables and the command line.

#ifndef RINGKV_CLIENT_LOAD_TEXT_H_
#define RINGKV_CLIENT_LOAD_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ringkv {

using Json = nlohmann::ordered_json;

bool IsUtf8(absl::string_view bytes);

// Adds bytes to an object: as `name` if they are UTF-8, else as `name`_base64.
void AddBytes(absl::string_view name, absl::string_view bytes, Json& object);

// The member `name` (a string) or `name`_base64 of an object. NOT_FOUND if
// there is neither, INVALID_ARGUMENT if there are both or what is there is no
// string or no base64. With `any_value`, `name` may be any JSON value but null;
// what is no string is taken as compact JSON text.
absl::StatusOr<std::string> TakeBytes(absl::string_view name,
                                      const Json& object, bool any_value);

// INVALID_ARGUMENT unless `text` is pairs of hexadecimal digits, or base64.
absl::StatusOr<std::string> FromHex(absl::string_view text);
absl::StatusOr<std::string> FromBase64(absl::string_view text);

// Bytes as one line for a terminal: what is not printable UTF-8 is escaped.
std::string Printable(absl::string_view bytes);

}  // namespace ringkv

#endif  // RINGKV_CLIENT_LOAD_TEXT_H_
