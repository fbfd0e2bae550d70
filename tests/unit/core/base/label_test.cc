#include "core/base/label.h"

#include <gtest/gtest.h>

namespace vrdma::base {
namespace {

TEST(Labels, are_bounded) {
  const auto sentence = [](const std::map<std::string, std::string>& labels) {
    const auto ok = check_labels(labels);
    return ok ? "" : ok.error().message();
  };
  EXPECT_EQ(sentence({{"app.kubernetes.io/name", "web"}, {"0", ""}, {std::string(63, 'k'), "v"}}),
            "");
  EXPECT_EQ(sentence({{"k", std::string(255, '~')}}), "");
  for (const std::string& key : {std::string(), std::string(64, 'k'), std::string("a b"),
                                 std::string("-a"), std::string("a="), std::string("\xc3\xa4")})
    EXPECT_NE(sentence({{key, "v"}}).find("is not a valid label key"), std::string::npos) << key;
  for (const std::string& value : {std::string(256, 'v'), std::string("a\n"), std::string("\xff")})
    EXPECT_NE(sentence({{"k", value}}).find("the value of label 'k'"), std::string::npos);
  std::map<std::string, std::string> many;
  for (int i = 0; i < 17; ++i) many["k" + std::to_string(i)] = "v";
  EXPECT_EQ(sentence(many), "17 labels are too many: a vdevice has at most 16");
}

}  // namespace
}  // namespace vrdma::base
