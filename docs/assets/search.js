// The theme's search takes the dashes of an option for "without", and a stop word for the start of many other words:
// "start --brokers" and "replace a broker" would find nothing and everything.
const STOP_WORDS = new Set(["a", "an", "and", "are", "as", "at", "by", "do", "for", "how", "i", "in", "is", "of", "on", "or", "the", "to", "with"]);
const post = Worker.prototype.postMessage;

Worker.prototype.postMessage = function (message, ...rest) {
  if (message && typeof message.data === "string") {
    const words = message.data.replace(/(^|\s)[-+]+(?=\w)/g, "$1").split(" ");
    const meant = words.filter((word) => !STOP_WORDS.has(word.toLowerCase()));
    message = { ...message, data: (meant.some(Boolean) ? meant : words).join(" ") };
  }
  return post.call(this, message, ...rest);
};
