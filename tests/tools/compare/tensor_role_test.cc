// Tensors of a case by the names that others give them.

#include "tools/compare/tensor_role.h"

#include <gtest/gtest.h>

namespace kvcheck {
namespace {

FileIndex IndexOf(const std::vector<std::pair<std::string, std::vector<int64_t>>>& tensors) {
  FileIndex index;
  for (const auto& [path, extents] : tensors) {
    ObjectRecord record;
    record.is_dataset = true;
    record.shape = Shape::Unnamed(extents);
    index.objects[path] = record;
  }
  return index;
}

TEST(TensorRole, IsFoundUnderTheNamesOfLibraries) {
  const std::pair<const char*, const char*> rows[] = {{"/query", "q"},
                                                      {"/Q", "q"},
                                                      {"/layers.3.key_states", "k"},
                                                      {"/values", "v"},
                                                      {"/output", "out"},
                                                      {"/blocks/2/attn_output", "out"},
                                                      {"/softmax_lse", "lse"},
                                                      {"/attn_mask", "mask"},
                                                      {"/s_aux", "sinks"}};
  for (const auto& [path, name] : rows) EXPECT_TRUE(IsOtherName(path, name)) << path;
  for (const auto& [path, name] :
       {std::pair{"/query", "k"}, {"/my_query", "q"}, {"/query.", "q"}}) {
    EXPECT_FALSE(IsOtherName(path, name)) << path;
  }
}

TEST(TensorRole, OfSeveralIsWhatHasAsManyElements) {
  const FileIndex index = IndexOf({{"/attn_output", {2, 8}}, {"/output", {2, 64}}});
  EXPECT_EQ(DatasetsMeantBy(index, "out", 16), std::vector<std::string>{"/attn_output"});
  EXPECT_EQ(DatasetsMeantBy(index, "out", 5).size(), 2u);
  EXPECT_EQ(DatasetsMeantBy(index, "q", 16).size(), 0u);
}

TEST(TensorRole, ThatIsNotFoundListsWhatIsThere) {
  const FileIndex index = IndexOf({{"/kk", {3}}, {"/my_queries", {2, 8}}, {"/qk_norm", {64}}});
  EXPECT_EQ(PresentText(index, "q", 16, {}),
            "present: /kk float32 3, /my_queries float32 2x8, /qk_norm float32 64; did you mean "
            "--map q=/my_queries?");
  EXPECT_EQ(PresentText(index, "q", 16, {"/my_queries"}).find("did you mean --map q=/my"),
            std::string::npos);
  EXPECT_EQ(PresentText(FileIndex(), "q", 16, {}), "the file has no tensor");
}

}  // namespace
}  // namespace kvcheck
