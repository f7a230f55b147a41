/* LongBench (Bai et al. 2023, arXiv 2308.14508): its 21 datasets with the metrics and lengths of answers that were
 * published. The wording is our own; each item's context and question stand where the published prompts have them. */
#include "longbench.h"

#define PASSAGES                                                                                                            \
	"Below are several passages and then a question about them. Reply with the answer alone.\n\nPassages:\n{context}\n\n"   \
	"Using these passages, reply to the question with the answer alone.\n\nQuestion: {input}\nAnswer:"
#define CODE "Here is the beginning of a source file. Write the line that comes next.\n"

static const longbench_set sets[] = {
    {"narrativeqa", "f1", 128, false, false,
     "Below is a story, from a novel or a film script, and then a question about it. Reply in a short phrase, without "
     "reasons."
     "\n\nStory: {context}\n\nReply to this question about the story in a short phrase, without reasons.\n\nQuestion: "
     "{input}"
     "\n\nAnswer:"},
    {"qasper", "f1", 128, false, false,
     "Below is a research paper and then a question about it. Reply in a phrase or one sentence, without reasons. Where the "
     "question asks for yes or no, reply \"yes\" or \"no\"; where the paper does not tell, reply "
     "\"unanswerable\".\n\nPaper: "
     "{context}\n\nReply to this question about the paper in a phrase or one sentence; \"yes\", \"no\" and \"unanswerable\" "
     "are "
     "possible replies.\n\nQuestion: {input}\n\nAnswer:"},
    {"multifieldqa_en", "f1", 64, false, false,
     "Below is a text and then a question about it.\n\n{context}\n\nReply to the question from the text above, with the "
     "answer "
     "alone.\n\nQuestion: {input}\nAnswer:"},
    {"multifieldqa_zh", "f1_zh", 64, false, true,
     "下面是一篇文章，文章之后有一个问题。\n\n{context}\n\n请根据这篇文章用中文回答问题，只写出答案本身。\n\n问题：{input}"
     "\n答案："},
    {"hotpotqa", "f1", 32, false, false, PASSAGES},
    {"2wikimqa", "f1", 32, false, false, PASSAGES},
    {"musique", "f1", 32, false, false, PASSAGES},
    {"dureader", "rouge_l_zh", 128, false, true,
     "下面是几篇文章，之后有一个与它们有关的问题。\n\n文章：{context}\n\n请依据这些文章作答。\n\n问题：{input}\n答案："},
    {"gov_report", "rouge_l", 512, false, false,
     "Below is a report that a government agency published.\n\nReport:\n{context}\n\nSummarise the report on about one "
     "page.\n\n"
     "Summary:"},
    {"qmsum", "rouge_l", 512, false, false,
     "Below is what was said in a meeting, and then a request about it.\n\nMeeting:\n{context}\n\nRespond to this request "
     "about "
     "the meeting in one or a few sentences.\n\nRequest: {input}\nResponse:"},
    {"multi_news", "rouge_l", 512, false, false,
     "Below are news articles about the same event.\n\nArticles:\n{context}\n\nSummarise all of them together on about one "
     "page."
     "\n\nSummary:"},
    {"vcsum", "rouge_l_zh", 512, false, true,
     "下面是一次会议的发言记录。\n记录：\n{context}\n\n请把这次会议的内容概括成一段话。\n\n概括："},
    {"trec", "classification_line", 64, true, false,
     "Questions, each with its type. Name the type of the last one.\n\n{context}\n{input}"},
    {"triviaqa", "f1_line", 32, true, false,
     "Passages, each with a question and its answer. Give the last answer, and nothing else.\n\n{context}\n\n{input}"},
    {"samsum", "rouge_l_line", 128, true, false,
     "Conversations, each with a summary of a few short sentences. Summarise the last one.\n\n{context}\n\n{input}"},
    {"lsht", "classification_line", 64, true, true, "以下每则新闻都标有类别，请给出最后一则的类别。\n\n{context}\n{input}"},
    {"passage_count", "count", 32, false, false,
     "Below are paragraphs of an encyclopaedia, and some of them appear more than once. Find out how many different ones "
     "there "
     "are.\n\n{context}\n\nHow many different paragraphs are there, each counted once? Write the number alone, for example "
     "7.\n\n"
     "Number: "},
    {"passage_retrieval_en", "retrieval", 32, false, false,
     "Below are 30 numbered paragraphs of an encyclopaedia, and then the summary of one of them. Find out which "
     "one.\n\n{context}"
     "\n\nThe summary:\n\n{input}\n\nWhich paragraph is it of? Write its number in the form \"Paragraph 7\".\n\nAnswer: "},
    {"passage_retrieval_zh", "retrieval_zh", 32, false, true,
     "下面是一些编了号的段落，之后是其中一段的摘要，请找出是哪一段。\n\n{context}\n\n摘要：\n\n{input}\n\n"
     "这是哪一段的摘要？请按“段落7”的格式写出编号。\n\n答案："},
    {"lcc", "code_sim", 64, true, false, CODE "{context}The next line:\n"},
    {"repobench-p", "code_sim", 64, true, false, CODE "{context}{input}The next line:\n"},
};

const longbench_set *longbench_at(size_t i) { return i < sizeof sets / sizeof *sets ? &sets[i] : NULL; }
