#include "client/load/text.h"

#include <google/protobuf/stubs/common.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace ringkv {

bool IsUtf8(absl::string_view bytes) {
  return google::protobuf::internal::IsStructurallyValidUTF8(
      bytes.data(), static_cast<int>(bytes.size()));
}

void AddBytes(absl::string_view name, absl::string_view bytes, Json& object) {
  if (IsUtf8(bytes)) {
    object[std::string(name)] = std::string(bytes);
  } else {
    object[absl::StrCat(name, "_base64")] = absl::Base64Escape(bytes);
  }
}

absl::StatusOr<std::string> TakeBytes(absl::string_view name,
                                      const Json& object, bool any_value) {
  const std::string plain(name);
  const std::string encoded = absl::StrCat(name, "_base64");
  const auto text = object.find(plain);
  const auto base64 = object.find(encoded);
  if (text != object.end() && base64 != object.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "has both \"", plain, "\" and \"", encoded, "\"; one is enough"));
  }
  if (base64 != object.end()) {
    if (!base64->is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", encoded, "\" is no string"));
    }
    absl::StatusOr<std::string> bytes =
        FromBase64(base64->get_ref<const std::string&>());
    if (!bytes.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", encoded, "\" is not base64"));
    }
    return bytes;
  }
  if (text == object.end()) {
    return absl::NotFoundError(
        absl::StrCat("has no \"", plain, "\" (or \"", encoded, "\")"));
  }
  if (text->is_string()) return text->get<std::string>();
  if (any_value && !text->is_null()) return text->dump();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", plain, "\" is ", text->is_null() ? "null" : "no string"));
}

absl::StatusOr<std::string> FromHex(absl::string_view text) {
  if (text.size() % 2 != 0 ||
      !std::all_of(text.begin(), text.end(), [](char c) {
        return absl::ascii_isxdigit(static_cast<unsigned char>(c));
      })) {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", Printable(text), "\" is not hexadecimal (pairs of 0-9, a-f)"));
  }
  return absl::HexStringToBytes(text);
}

absl::StatusOr<std::string> FromBase64(absl::string_view text) {
  std::string bytes;
  if (!absl::Base64Unescape(text, &bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", Printable(text), "\" is not base64"));
  }
  return bytes;
}

std::string Printable(absl::string_view bytes) {
  if (!IsUtf8(bytes)) return absl::CHexEscape(bytes);
  const bool plain = std::none_of(bytes.begin(), bytes.end(), [](char c) {
    return absl::ascii_iscntrl(static_cast<unsigned char>(c));
  });
  return plain ? std::string(bytes) : absl::Utf8SafeCHexEscape(bytes);
}

}  // namespace ringkv
